"""Map both modalities into the common space: sparse (the paper), canonical, contrastive."""
