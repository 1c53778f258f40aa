"""Reports of one subject again and again: prediction over traces, and what an attacker gets of many reports."""
