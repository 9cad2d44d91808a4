"""Summarizing with a trained model or an extractive method."""

from catchline.summarizer.summarize import Summarizer

__all__ = ["Summarizer"]
