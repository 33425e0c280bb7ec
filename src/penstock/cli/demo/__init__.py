"""The demonstration: sensors, the IoT pipeline, controllers; or the broker alone."""
