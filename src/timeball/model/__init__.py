"""The nouns as frozen values, and the table of legal moves between states."""
