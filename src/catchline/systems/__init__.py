"""What `Summarizer` runs: a trained model, or an extractive method."""
