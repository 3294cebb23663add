"""How many workers each task gets: the paper's dynamic programme, exact and fast, and what explains it."""
