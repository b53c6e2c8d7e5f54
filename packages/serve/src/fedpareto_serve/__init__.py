"""Trained models in use: `model(x, preference)`, in one file, on the command line, over HTTP, as ONNX."""
