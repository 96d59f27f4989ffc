// Go wants a file of assembly beside a function that is only declared, as main.go declares one by go:linkname.
