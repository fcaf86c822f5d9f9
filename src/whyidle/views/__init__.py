"""What a person sees. Views draw a verdict and compute nothing."""
