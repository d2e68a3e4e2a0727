"""The corpus, judged."""
