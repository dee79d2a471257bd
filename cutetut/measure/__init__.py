"""Speed on a GPU beside a vendor's kernel, the tables of it, mistakes tried on silicon, and Nsight Compute's counts."""
