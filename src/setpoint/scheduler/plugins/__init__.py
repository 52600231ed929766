"""The plugins, one a file, under upstream's names. What is here comes with NumPy: it is imported when the first node
appears."""
