OURS = "sklearn beside the script"
