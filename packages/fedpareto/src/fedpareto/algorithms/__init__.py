"""One short file for each algorithm, in its paper's symbols. Any file in this folder is found by its class's name."""
