"""One file per question that a recipe answers: the base at the top, mechanisms under it."""
