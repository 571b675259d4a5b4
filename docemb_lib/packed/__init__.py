"""Documents in one row of tokens without padding, and the forward pass of encoders over them."""
