"""Rows as models read them: columns of a table, images and texts as numbers, and the files that hold them."""
