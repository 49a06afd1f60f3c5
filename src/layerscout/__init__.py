"""Find out which layers of a pretrained text encoder are worth tuning, before you tune."""
