"""Problems, solvers and the databases of their solutions."""
