"""The summarization models: encode, start, step, forward."""
