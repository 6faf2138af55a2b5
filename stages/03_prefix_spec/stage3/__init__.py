"""Stage 3: prefix caching, guided decoding and speculative decoding, plugged into stage 2."""
