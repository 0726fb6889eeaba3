"""What crews there are: by the configuration, and by what their programs and projects tell."""
