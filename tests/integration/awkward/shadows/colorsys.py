OURS = "colorsys beside the script"
