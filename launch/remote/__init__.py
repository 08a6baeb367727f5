"""Other machines: reached over ssh, asked first, kept while they run."""
