"""The commands of SVM-struct: ``maxmargin svm-multiclass`` and ``maxmargin svm-hmm``, with their options and files."""
