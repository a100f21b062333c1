"""What people see of suppliers' lists."""
