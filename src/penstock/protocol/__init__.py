"""Wire formats, pure: bytes in, values out, and back."""
