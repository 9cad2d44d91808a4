"""Exported models without a training framework: onnxruntime, NumPy and tokenizers alone."""
