"""The use cases of the broker, in the words of the model; the doors translate to and from them."""
