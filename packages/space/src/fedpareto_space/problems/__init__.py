"""Problems of satellites."""
