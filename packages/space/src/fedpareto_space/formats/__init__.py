"""Models as ONNX and as NNEF: whole, and weights alone."""
