"""The claims of the paper that rhovec follows: measured, judged and recorded. Not part of the wheel."""
