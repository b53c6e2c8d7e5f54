"""One short file for each algorithm, in its paper's symbols. A file that lies here is found by its class's name."""
