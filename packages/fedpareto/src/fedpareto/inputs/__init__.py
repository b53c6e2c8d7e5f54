"""What a row looks like to a model: columns of a table, images and texts as numbers, and the files that hold them."""
