"""Raw text in, summaries that can say where each word came from out: ``Summarizer``."""

from laconic.summarizer.facade import Summarizer

__all__ = ["Summarizer"]
