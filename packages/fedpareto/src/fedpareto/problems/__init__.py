"""Problems: data, model and objectives."""
