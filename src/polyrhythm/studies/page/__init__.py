"""What came of a study: judged, in numbers, pictures and words."""
