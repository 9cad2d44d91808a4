"""Text: normalisation, tokenizers, extended vocabulary, sentences. No tensor library is imported here."""
