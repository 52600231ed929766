"""Questions that are answered on the spot and never stored: who is it, may they, a token please."""
