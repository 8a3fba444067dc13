"""Numbers from the literature, and those of a sweep that repeats the study beside them."""
