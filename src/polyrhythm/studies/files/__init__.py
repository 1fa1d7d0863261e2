"""Studies as they are written: the language of their files, and those that come along."""
