"""Records and journals as earlier versions stored them, which later versions must read."""
