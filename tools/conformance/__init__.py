"""Installs the known clients of RSMQ and plays the conformance kit with all of them."""
