"""What everything else stands on: errors, named randomness, flat vectors, messages. It imports nothing of ours."""
