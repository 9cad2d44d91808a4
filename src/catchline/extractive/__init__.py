"""Extractive summarizers over one sentence-term model: ``extractive.summarize(name, document, **options)``."""

from catchline.extractive.base import summarize as summarize
