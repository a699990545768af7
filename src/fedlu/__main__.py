from fedlu.cli import main

main()
