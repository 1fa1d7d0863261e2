"""Many runs under one definition: searches for settings, and the tables and figures of papers."""
