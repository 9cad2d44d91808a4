"""Extractive summarizers: one family of methods a file over one sentence-term model. No tensor library, no downloads.

``extractive.summarize(name, document, **options)`` is the short way in; ``catchline.config.names.EXTRACTIVE`` has
the names.
"""

from catchline.extractive.base import summarize as summarize
