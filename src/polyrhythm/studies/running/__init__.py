"""The one executor of studies: trials and runs, in this process or in others, which goes on where it was stopped."""
