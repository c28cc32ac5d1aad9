"""Users' pictures, which may be damaged or hostile: decoded in processes of their own, within limits."""
