"""Co-design as people ask for it: a base case, what is free in it, and the rows of the answer."""
