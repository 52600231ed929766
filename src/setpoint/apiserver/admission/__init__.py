"""Admission plugins, one module for each plugin or group of related plugins."""
