"""The common space: the paper's sparse mapping, canonical correlation, and a contrastive refinement."""
